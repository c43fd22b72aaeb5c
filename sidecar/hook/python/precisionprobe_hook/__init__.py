"""The part of PrecisionProbe that runs inside a training. See sidecar/README.md.

Rules that hold everywhere here: never raise, print or block in the user's thread; an error of ours
ends the hook, not the training; KeyboardInterrupt and SystemExit are the user's and pass through.
"""
import os

# The extension lies in a folder per machine, so that one copy of the hook serves nodes of all kinds.
__path__.insert(0, os.path.join(os.path.dirname(__file__), os.uname().machine))

"""The part of PrecisionProbe that runs inside a training. See sidecar/README.md.

Rules that hold everywhere here: never raise, print or block in the user's thread; an error of ours
ends the hook, not the training; KeyboardInterrupt and SystemExit are the user's and pass through.
"""

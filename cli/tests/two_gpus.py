"""A training whose last layer is on a second GPU, on the doubles of CUDA and CUPTI that sidecar/tests has.

usage: two_gpus.py DOUBLES SECONDS [FAULT]   (of CUPTI's, for a moment of every 4 s)
"""
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "sidecar" / "tests"))
import kernels

doubles, seconds = pathlib.Path(sys.argv[1]), float(sys.argv[2])
kernels.load(str(doubles / "cuda/libcuda.so.1"), str(doubles / "cupti/libcupti.so.13"))
training = kernels.Training()
kernels.spread(training)
fault = sys.argv[3].encode() if len(sys.argv) > 3 else b""
end = time.monotonic() + seconds
while time.monotonic() < end:
    kernels.double.pp_cupti_fault(fault if time.monotonic() % 4 < 0.1 else b"")
    training.step()

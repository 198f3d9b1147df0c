"""examples/pytorch/train.py with PyTorch's own PowerSGD in place of Gradwire, as bench/ddp.py sets it up. The words are
RANK, the rank of its approximation, and then those of train.py; --codec must be ddp."""
import pathlib
import sys

from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "examples/pytorch"))
import train

RANK = int(sys.argv.pop(1))


class WithPowerSGD(train.DistributedDataParallel):
    def __init__(self, module):
        super().__init__(module)
        state = powerSGD_hook.PowerSGDState(None, RANK, start_powerSGD_iter=2, min_compression_rate=0.5)
        self.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


if __name__ == "__main__":
    train.DistributedDataParallel = WithPowerSGD
    train.main()

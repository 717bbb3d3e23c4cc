"""What ``ddpcheck run --help`` prints: its own options in groups, how it is used, and where torchrun's are."""

from __future__ import annotations

import argparse

from ddpcheck.run import own_options

_USAGE = "ddpcheck run [options] [torchrun's options] train.py [the script's arguments]"

_DESCRIPTION = """\
Runs a training as it would run by itself, and reports which invariants of distributed training held and which were
broken, on which rank, by which line. torchrun's options start ranks; without them, a script or command starts its own.
"""

_EXAMPLES = """\
examples:
  ddpcheck run --nproc-per-node 2 train.py --epochs 3    in the place of torchrun
  ddpcheck run torchrun --nproc-per-node 2 train.py      the same
  ddpcheck run train.py                                  a script that starts its ranks (mp.spawn, notebook_launcher)
  ddpcheck run accelerate launch train.py                any command that starts them, as it is written
  ddpcheck run bash train.sh
  srun ddpcheck run --task python train.py               a launcher that starts each rank as a task of its own

--help-torchrun lists torchrun's options. ddpcheck checks lists what is checked, ddpcheck explain ID explains a check.
"""


def of_ours() -> str:
    """The text of --help."""
    parser = argparse.ArgumentParser(
        prog="ddpcheck run",
        usage=_USAGE,
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    own_options.add(parser)
    about = parser.add_argument_group("help")
    about.add_argument("-h", "--help", action="store_true", help="print this text")
    about.add_argument("--help-torchrun", action="store_true", help="print torchrun's options, all of which work here")
    return parser.format_help()


def of_torchruns(torchruns: argparse.ArgumentParser) -> str:
    """The text of --help-torchrun."""
    torchruns.prog = "ddpcheck run"
    torchruns.usage = _USAGE
    torchruns.description = "torchrun's options, as the torch of this environment has them."
    return torchruns.format_help()

"""``python -m stages.train --request request.json``"""

from __future__ import annotations

from stages.contract import main
from stages.train.stage import run

if __name__ == "__main__":
    main("train", run)

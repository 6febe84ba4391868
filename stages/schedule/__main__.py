"""``python -m stages.schedule --request request.json``"""

from stages.contract import main
from stages.schedule.stage import run

if __name__ == "__main__":
    main("schedule", run)

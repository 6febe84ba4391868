"""``python -m stages.profile --request request.json``"""

from stages.contract import main
from stages.profile.stage import run

if __name__ == "__main__":
    main("profile", run)

"""``python -m stages.deploy --request request.json``"""

from stages.contract import main
from stages.deploy.stage import run

if __name__ == "__main__":
    main("deploy", run)

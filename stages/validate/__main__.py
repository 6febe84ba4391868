from stages.contract import main
from stages.validate.stage import run

if __name__ == "__main__":
    main("validate", run)

"""`python -m whatwhere` is `whatwhere`."""

from whatwhere.cli import main

if __name__ == "__main__":
    main()

"""`python -m sao_bench`."""

from sao_bench.cli import main

if __name__ == "__main__":
    main()

"""Write the dashboards as JSON and `docs/dashboards.md`, which explains them: ``python -m dashboards``."""

import sys

from dashboards.files import files


def main() -> int:
    """Write every file that is not up to date."""
    for path, text in files().items():
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            sys.stderr.write(f"wrote {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

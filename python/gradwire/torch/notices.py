"""What a rank says on standard error while it trains, and at its end."""
import sys


def say(text):
    """Prints a sentence. Its reader may have gone, or the program has closed the stream or put an object of its own
    there, which may raise anything. That is no reason for a training to end."""
    try:
        if sys.stderr is not None:  # else print would take standard output
            print(text, file=sys.stderr, flush=True)
    except Exception:
        pass

"""Early ends of the work, which the command line reports without a traceback."""


class Stopped(Exception):
    """An early end of the work. The command line prints the message.

    Attributes:
        status: exit status.
    """

    status = 1

"""The format of the commands' help."""

from jsonargparse import DefaultHelpFormatter

#: The help that jsonargparse gives to the option of a group, such as `--model`.
_GROUP_HELP = "Path to a configuration file."


class HelpFormatter(DefaultHelpFormatter):
    """Shows types and defaults. A default of `None` is not shown: the help of its option describes it in words."""

    def _get_help_string(self, action):
        if action.help == _GROUP_HELP:
            return f"YAML file with the options `{action.dest}.…`"
        text = super()._get_help_string(action)
        if action.default is None:
            for shown in (" (default: %(default)s)", ", default: %(default)s"):
                text = text.replace(shown, "")
        return text

"""The format of the commands' help."""

from jsonargparse import DefaultHelpFormatter

from keras_transformer.cli.kinds import describe_kind

#: The help that jsonargparse gives to the option of a group, such as `--model`.
GROUP_HELP = "Path to a configuration file."


class HelpFormatter(DefaultHelpFormatter):
    """Shows types and defaults in plain words.

    A default of `None` is not shown: the help of its option describes it in words.
    """

    def _get_help_string(self, action):
        if action.help == GROUP_HELP:
            return f"YAML file with the options `{action.dest}.…`"
        text = super()._get_help_string(action)
        if isinstance(action.default, bool):
            text = text.replace("%(default)s", str(action.default).lower())
        if action.default is None:
            for shown in (" (default: %(default)s)", ", default: %(default)s"):
                text = text.replace(shown, "")
        return text

    def _get_type_str(self, action):
        kind = getattr(action, "_typehint", None) or action.type
        if kind is None or action.choices:
            return None
        return describe_kind(kind)

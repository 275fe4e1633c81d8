from . import distillation as distillation, serve as serve
from .html.html_text import HtmlText as HtmlText
from .shortlisting import learn_shortlist as learn_shortlist

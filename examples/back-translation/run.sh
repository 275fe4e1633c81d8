#!/bin/sh
# Back-translation: monolingual text in the target language improves a model that has few translations to learn from.
# A model of the reverse direction translates the text, and the pairs become a second, tagged corpus.
#
#   sh examples/back-translation/run.sh
#
# The current folder has the parallel text (train.en, train.de), German text (mono.de), and text to validate on
# (dev.en, dev.de). With test.en and test.de, the result is compared with a model that is trained on the parallel text
# alone. The settings are for a few thousand pairs. With more text, edit the three YAML files: fewer epochs, a larger
# vocabulary and a larger model, and for longer sentences a larger `max_length` (64 subwords).
# For other languages, replace en and de in this script and in the YAML files.
#
# Arguments of the script, such as `--recipe.max_steps 100`, are passed to every `keras-transformer train`. If the
# script was interrupted, start it again: it continues.
#
# References: Sennrich et al. 2016, "Improving Neural Machine Translation Models with Monolingual Data"; Caswell et al.
# 2019, "Tagged Back-Translation".
set -eu
examples=$(dirname "$0")

train() { # NAME OPTION…: trains runs/NAME with NAME.yaml, unless it is finished.
    name=$1
    shift
    [ -f "runs/$name/model.keras" ] || keras-transformer train --config "$examples/$name.yaml" --output "runs/$name" "$@"
}

train reverse "$@"
[ -f back-translated.en ] ||
    keras-transformer translate runs/reverse mono.de --sampling --top_k 10 --output back-translated.en --resume
train mixed "$@"
if [ -f test.en ]; then
    train parallel "$@"
    keras-transformer compare runs/parallel runs/mixed --source test.en --reference test.de
fi

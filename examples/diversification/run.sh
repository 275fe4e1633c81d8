#!/bin/sh
# Data diversification: a better model from the same text, where there is no more of it. A forward and a backward model
# translate the training text, and the final model learns from the original and from both translated corpora.
#
#   sh examples/diversification/run.sh
#
# The current folder has the parallel text (train.en, train.de) and text to validate on (dev.en, dev.de). With test.en
# and test.de, the result is compared with the forward model. The settings are for tens of thousands of pairs. Arguments
# of the script, such as `--recipe.max_steps 100`, are passed to every `keras-transformer train`. If the script was
# interrupted, start it again: it continues.
#
# Reference: Nguyen et al. 2020, "Data Diversification: A Simple Strategy For Neural Machine Translation".
set -eu
examples=$(dirname "$0")

train() { # NAME OPTION…: trains runs/NAME with NAME.yaml, unless it is finished.
    name=$1
    shift
    [ -f "runs/$name/model.keras" ] || keras-transformer train --config "$examples/$name.yaml" --output "runs/$name" "$@"
}

translate() { # NAME SOURCE TARGET: lets runs/NAME translate train.SOURCE. Of 4 translations, keeps the one closest to train.TARGET.
    [ -d "runs/$1/export/onnx_int8" ] || keras-transformer export "runs/$1" --format onnx --quantize int8
    [ -f "runs/$1-text/tokens/tokens.json" ] ||
        keras-transformer distill --teacher "runs/$1" --source "train.$2" --target "train.$3" \
            --validation_source "dev.$2" --validation_target "dev.$3" --output "runs/$1-text"
}

train forward "$@"
train backward "$@"
translate forward en de
translate backward de en
train diversified "$@"
if [ -f test.en ]; then
    keras-transformer compare runs/forward runs/diversified --source test.en --reference test.de
fi

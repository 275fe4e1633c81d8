#!/bin/sh
# Data diversification improves a model without additional text. A forward and a backward model translate the training
# text, and the final model learns from the original and from both translated corpora.
#
#   sh examples/diversification/run.sh
#
# The current folder has the parallel text (train.en, train.de) and text to validate on (dev.en, dev.de). With test.en
# and test.de, the result is compared with the forward model. The settings are for tens of thousands of pairs: with
# the 29,000 of Multi30k, all steps together take three hours on one CPU core. Their sentences are short, so pairs
# with more than 64 subwords on a side are left out; raise `max_length` in the three YAML files for other text.
# For other languages, replace en and de in this script and in the YAML files.
#
# Arguments of the script, such as `--recipe.max_steps 100`, are passed to every `keras-transformer train`. If the
# script was interrupted, start it again: it continues.
#
# Reference: Nguyen et al. 2020, "Data Diversification: A Simple Strategy For Neural Machine Translation".
set -eu
examples=$(dirname "$0")

translate() { # NAME SOURCE TARGET OPTION…: trains runs/NAME, and translates train.SOURCE with it.
    name=$1 source=$2 target=$3
    shift 3
    [ -f "runs/$name/model.keras" ] ||
        keras-transformer train --config "$examples/$name.yaml" --output "runs/$name" "$@"
    [ -d "runs/$name/export/onnx_int8" ] || keras-transformer export "runs/$name" --format onnx --quantize int8
    # Of 4 translations of a sentence, the one most similar to train.TARGET is kept.
    [ -f "runs/$name-text/tokens/tokens.json" ] ||
        keras-transformer distill --teacher "runs/$name" --source "train.$source" --target "train.$target" \
            --validation_source "dev.$source" --validation_target "dev.$target" --output "runs/$name-text"
}

translate forward en de "$@"
translate backward de en "$@"
[ -f runs/diversified/model.keras ] ||
    keras-transformer train --config "$examples/diversified.yaml" --output runs/diversified "$@"
if [ -f test.en ]; then
    keras-transformer compare runs/forward runs/diversified --source test.en --reference test.de
fi

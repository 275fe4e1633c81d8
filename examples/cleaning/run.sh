#!/bin/sh
# Cleaning: a model is trained on text from the web, without the pairs that are not translations of each other.
# The rules of `prepare --clean` come first. Two small models, one in each direction, learn from the other pairs. The
# text is then cleaned again, with the rules and these two models, which detect wrong translations.
#
#   sh examples/cleaning/run.sh
#
# The current folder has the text from the web (crawled.en, crawled.de), and good translations to validate on (dev.en,
# dev.de). With test.en and test.de, the model is evaluated. The pairs that were removed are in rejected.tsv, each with
# the name of the filter. The settings are for tens of thousands of pairs. With more text, edit scorer.yaml and
# model.yaml: fewer epochs and a larger model. Install first: pip install --editable '.[clean]'
# For other languages, replace en and de in this script and in the YAML files.
#
# Arguments of the script, such as `--recipe.max_steps 100`, are passed to every `keras-transformer train`. If the script
# was interrupted, start it again: finished steps are skipped, and a training continues.
set -eu
examples=$(dirname "$0")

clean() { # NAME SOURCE TARGET OPTION…: cleans into tokens/NAME, unless it exists.
    name=$1 source=$2 target=$3
    shift 3
    [ -f "tokens/$name/tokens.json" ] || keras-transformer prepare --output "tokens/$name" \
        --source "crawled.$source" --target "crawled.$target" --source_language "$source" --target_language "$target" \
        --validation_source "dev.$source" --validation_target "dev.$target" --clean --cleaning.languages --overwrite "$@"
}

train() { # NAME OPTION…: trains runs/NAME, unless it is finished.
    name=$1
    shift
    [ -f "runs/$name/model.keras" ] || keras-transformer train --output "runs/$name" "$@"
}

clean rules en de
clean rules-reversed de en
train scorer --config "$examples/scorer.yaml" "$@"
train scorer-reversed --config "$examples/scorer.yaml" --prepared tokens/rules-reversed "$@"
clean cleaned en de --cleaning.model runs/scorer --cleaning.reverse_model runs/scorer-reversed \
    --cleaning.rejected rejected.tsv
train cleaned --config "$examples/model.yaml" "$@"
if [ -f test.en ]; then
    keras-transformer evaluate runs/cleaned --source test.en --reference test.de
fi

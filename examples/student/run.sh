#!/bin/sh
# A student learns from the original text and from the translations of its teacher. The settings are for tens of
# thousands of short sentence pairs. The teacher has 4 + 4 layers and uses beam search. The student has 6 + 2 layers and
# uses greedy search. With more text, use a larger teacher and the preset student-tiny.
#
#   sh examples/student/run.sh
#
# The current folder has the parallel text (train.en, train.de) and text to validate on (dev.en, dev.de). With test.en
# and test.de, the student is compared with the teacher. A model directory in runs/teacher is used as the teacher;
# without one, a teacher is trained. Arguments of the script, such as `--recipe.max_steps 100`, are passed to every
# `keras-transformer train`. If the script was interrupted, start it again: it continues. Finished steps are skipped.
#
# Pairs with more than 64 subwords on a side are left out; raise `max_length` in both YAML files for other text.
# For other languages, replace en and de in this script and in the YAML files.
#
# Reference: Kim & Rush 2016, "Sequence-Level Knowledge Distillation".
set -eu
examples=$(dirname "$0")

[ -f runs/teacher/model.keras ] ||
    keras-transformer train --config "$examples/teacher.yaml" --output runs/teacher "$@"
[ -d runs/teacher/export/onnx_int8 ] || keras-transformer export runs/teacher --format onnx --quantize int8
[ -f runs/distilled/tokens/tokens.json ] ||
    keras-transformer distill --teacher runs/teacher --source train.en --target train.de \
        --validation_source dev.en --validation_target dev.de --output runs/distilled
[ -f runs/student/model.keras ] ||
    keras-transformer train --config "$examples/student.yaml" --output runs/student "$@"
[ -f runs/student/shortlist.npz ] ||
    keras-transformer shortlist runs/student \
        --source runs/distilled/train.source.txt --target runs/distilled/train.target.txt
[ -d runs/student/export/onnx_int8 ] ||
    keras-transformer export runs/student --format onnx --quantize int8 --beam_size 1 --shortlist
if [ -f test.en ]; then
    for model in teacher student; do
        keras-transformer translate "runs/$model" test.en --runtime onnx_int8 --output "$model.de" --resume
    done
    keras-transformer compare teacher.de student.de --source test.en --reference test.de
fi

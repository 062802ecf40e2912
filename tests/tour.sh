#!/bin/sh
# docs/design.md names only source files, functions and words that are there, so that a newcomer who follows it gets somewhere.
set -eu
cd "$(dirname "$0")/.."
page=docs/design.md
status=0

# shellcheck disable=SC2013 # they are words
for file in $(grep -oE '[a-z_0-9-]+\.(c|h|sh|md)\b' $page | sort -u); do
    find proto client daemon tests docs -name "$file" | grep -q . || { echo "tour: $page names $file, which is not there"; status=1; }
done
# words in code marks that look like names of ours; those with a slash, a blank or an ellipsis are no names
# shellcheck disable=SC2013,SC2016 # words, in code marks
for word in $(grep -oE '`[A-Za-z_][A-Za-z_0-9]+`' $page | tr -d '`' | sort -u); do
    grep -rqw --include='*.[ch]' -e "$word" proto client daemon || { echo "tour: $page names $word, which is not there"; status=1; }
done
exit $status

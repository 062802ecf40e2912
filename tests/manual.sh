#!/bin/sh
# The manual and the completion know every subcommand and every option that the program knows.
set -eu
cd "$(dirname "$0")/.."
program=${SL_BUILD:-obj/release}/bin/scoped-lane
page=docs/man/scoped-lane.1
status=0
fail() {
    echo "manual: $*"
    status=1
}

subcommands=$("$program" --help | sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p')
[ -n "$subcommands" ] || fail "no subcommands in --help"
for subcommand in $subcommands; do
    grep -q "^\.It Cm $subcommand\b" $page || fail "$page does not tell of $subcommand"
    for option in $("$program" "$subcommand" --help | sed -n 's/^  .*--\([a-z-]*\).*  .*/\1/p'); do
        grep -q -e "Fl -$option\b" $page || fail "$page does not tell of --$option, an option of $subcommand"
    done
done

# The daemon's options are its settings: each stands in both its pages.
settings=$("$(dirname "$program")/scoped-laned" --help | sed -n 's/^  .*--\([a-z][a-z-]*\)[ ,].*/\1/p')
[ -n "$settings" ] || fail "no options in scoped-laned --help"
for setting in $settings; do
    grep -q -e "Fl -$setting\b" docs/man/scoped-laned.8 || fail "docs/man/scoped-laned.8 does not tell of --$setting"
    case $setting in config | version | help) continue ;; esac
    grep -q -e "^\.It Cm $setting\b" docs/man/scoped-laned.conf.5 || fail "docs/man/scoped-laned.conf.5 does not tell of $setting"
done

if command -v mandoc >/dev/null; then
    mandoc -T lint -W warning docs/man/*.[1-8] || fail "mandoc finds fault"
fi
if command -v shellcheck >/dev/null; then
    shellcheck -s bash docs/completion/*.bash || fail "shellcheck finds fault"
fi

completed=$(PATH=$(dirname "$program"):$PATH bash -c '
    source docs/completion/scoped-lane.bash
    offer() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _scoped_lane; echo "${COMPREPLY[@]}"; }
    offer scoped-lane ""
    offer scoped-lane threads --')
for word in $subcommands help --json --tsv --watch --rundir --run --rank --pid --help; do
    echo "$completed" | grep -q -w -e "$word" || fail "completion does not offer $word"
done
exit $status

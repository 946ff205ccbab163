# shellcheck shell=bash
# The common part of run and campaign, which source it: stages, their times and their counts.

tmp=$(mktemp -d)
mkdir "$tmp/output"
touch "$tmp/table"
cpu_before=0

# gotestsum runs go test and counts.
go build -modfile=tools/go.mod -o "$tmp/gotestsum" gotest.tools/gotestsum
export GOTEST="$tmp/gotestsum --hide-summary=skipped --" GOTESTSUM_FORMAT=pkgname-and-test-fails

# stage NAME COMMAND…: runs a command, keeps its output for counts, and notes how long it took. It ends as the command does.
stage() {
  local name=$1 begin=$SECONDS code=0
  shift
  echo "== $name"
  "$@" 2>&1 | tee "$tmp/output/$name" || code=$?
  note "$name" "$begin" "$code" "$(counts "$name")"
  return "$code"
}

# note NAME BEGIN CODE COUNTS: adds a line to the table of the stages. The CPU time is that of the processes that have ended
# since the line before.
note() {
  local cpu said="$((SECONDS - $2)) s"
  times >"$tmp/times"
  cpu=$(awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); sum += t[1] * 60 + t[2] } printf "%d", sum }' "$tmp/times")
  said+=", $((cpu - cpu_before)) s of CPU"
  cpu_before=$cpu
  [ "$3" = 0 ] || said+=", FAILED"
  echo "== $1 took $said"
  printf '%-20s %s%s\n' "$1" "$said" "${4:+, $4}" >>"$tmp/table"
}

# counts [NAME]: the sum of what gotestsum and planted have counted in a stage, or in all. Nothing if they have counted nothing.
counts() {
  local files=("$tmp/output/"*)
  [ $# = 0 ] || files=("$tmp/output/$1")
  cat "${files[@]}" | awk '
    /^DONE / { n++
      for (i = 2; i < NF; i++) {
        if ($(i + 1) ~ /^tests?,?$/) tests += $i
        if ($(i + 1) ~ /^skipped,?$/) skipped += $i
        if ($(i + 1) ~ /^failures?,?$/) failed += $i
      } }
    /^planted mistakes: [0-9]+ of [0-9]+ caught/ { planted = ", " $3 " of " $5 " planted mistakes caught" }
    END { if (n) printf "%d passed, %d failed, %d skipped", tests - skipped - failed, failed, skipped
          if (planted) printf "%s", n ? planted : substr(planted, 3)
          if (n || planted) print "" }'
}

# target NAME [VARIABLE=VALUE…]: a stage that is a target of make. It runs once more if an assertion of the race detector itself
# failed, which ends a package without a word about its tests. What had passed by then comes from go test's cache.
target() {
  stage "$1" make --no-print-directory "$@" && return
  grep -q '^ThreadSanitizer: CHECK failed' "$tmp/output/$1" || return 1
  echo "== $1 once more: the race detector failed, not a test"
  stage "$1" make --no-print-directory "$@"
}

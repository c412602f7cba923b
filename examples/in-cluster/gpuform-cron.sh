#!/bin/sh
# Plan a stack and show the plan to people, or apply the plan that they approved.
#
#   gpuform-cron.sh plan    needs keys that only read, and the token of the code host
#   gpuform-cron.sh apply   needs keys that may write
#
# STACK          the name of the stack
# PLANS          a folder that stays between runs
# APPROVAL       a file with the digest of the approved plan; empty or missing: nothing is approved
# REVIEW_FLAGS   where the review is posted: --forge github --repository OWNER/NAME --pull-request N;
#                empty: only in the log
set -eu
plan="$PLANS/$STACK.json"

case "${1:-}" in
plan)
  # A plan that would still do the same stays: its digest may be approved.
  if [ ! -f "$plan" ] || ! gpuform preview --stack "$STACK" --plan "$plan" >/dev/null 2>&1; then
    # 5: a gate stops the plan. The review says which, and the plan cannot be applied.
    gpuform preview --stack "$STACK" --save-plan "$plan.new" || test $? -eq 5
    mv "$plan.new" "$plan"
  fi
  # shellcheck disable=SC2086 # several flags
  gpuform review "$plan" ${REVIEW_FLAGS:+--post $REVIEW_FLAGS}
  ;;
apply)
  # An editor may leave spaces or line breaks of Windows around the digest.
  approved=$(tr -d '[:space:]' 2>/dev/null <"$APPROVAL" || true)
  case "$approved" in
  "" | *[!0-9a-f]*)
    echo "no plan of $STACK is approved"
    exit 0
    ;;
  esac
  if ! grep -qs "\"seal\": *\"$approved\"" "$plan"; then
    echo "the approved plan of $STACK is another one: $approved"
    exit 0
  fi
  # --digest refuses a plan that somebody has edited; a plan can be applied once.
  gpuform up --stack "$STACK" --plan "$plan" --digest "$approved" --yes --require-checks --lock-timeout 10m
  rm -f "$plan"
  ;;
*)
  echo "usage: gpuform-cron.sh plan|apply" >&2
  exit 2
  ;;
esac

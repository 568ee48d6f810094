url="${IR3DE_URL:-http://127.0.0.1:8100/v1}"
question='{"role": "user", "content": "Can my landlord evict me?"}'

curl --fail-with-body -sS "$url/chat/completions" -H "content-type: application/json" \
  -d "{\"model\": \"auto\", \"messages\": [$question]}"
echo

curl --fail-with-body -sS -N "$url/chat/completions" -H "content-type: application/json" \
  -d "{\"model\": \"auto\", \"stream\": true, \"messages\": [$question]}"

# who would answer: the headers alone
curl --fail-with-body -sS -o /dev/null -D - "$url/chat/completions" -H "content-type: application/json" \
  -H "x-session-id: monday" -d "{\"model\": \"auto\", \"messages\": [$question]}"

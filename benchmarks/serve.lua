-- wrk's script: sends the requests of a file in turn, and checks that each answer is one of those in the file. A line of
-- the file is a request and its answer, separated by a tab. wrk does not tell to which request an answer belongs.
bodies, answers, wrong, sent = {}, {}, 0, 0
local threads = {}

function setup(thread)
  table.insert(threads, thread)
end

function init(arguments)
  for line in io.lines(arguments[1]) do
    local body, answer = line:match("^(.-)\t(.*)$")
    bodies[#bodies + 1] = wrk.format("POST", "/translate", {["Content-Type"] = "application/json"}, body)
    answers[answer] = true
  end
end

function request()
  sent = sent % #bodies + 1
  return bodies[sent]
end

function response(status, headers, body)
  if status ~= 200 or not answers[body] then
    wrong = wrong + 1
  end
end

function done(summary, latency, requests)
  local errors = summary.errors
  local wrong = 0
  for _, thread in ipairs(threads) do
    wrong = wrong + thread:get("wrong")
  end
  io.write(string.format('\n{"requests": %d, "seconds": %f, "p50": %f, "p99": %f, "errors": %d, "wrong": %d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    errors.connect + errors.read + errors.write + errors.timeout, wrong))
end

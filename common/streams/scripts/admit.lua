-- Admission in one round trip: bounds, record, inbox entry. Repeating it with the same id is harmless: by the same
-- caller after a lost answer, or by another one who has the id from an idempotency key. Only the first is a follower.
--
-- KEYS  record, inbox, queued
-- ARGV  id, class, prompt_tokens, max_requests, max_tokens, budget_ms, record_ttl_ms, log, start, follower,
--       tenant, header, body, resume_grace_ms
-- Answer {'ok', admitted_ms, deadline_ms, 1 when the record counts the follower} | {'full', requests, tokens}
local known = redis.call('HMGET', KEYS[1], 'admitted_ms', 'deadline_ms', 'f:' .. ARGV[10])
if known[1] then
  return {'ok', known[1], known[2], known[3] and 1 or 0}
end

local class, prompt_tokens = ARGV[2], tonumber(ARGV[3])
local requests = tonumber(redis.call('HGET', KEYS[3], 'requests:' .. class) or 0)
local tokens = tonumber(redis.call('HGET', KEYS[3], 'tokens:' .. class) or 0)
-- One request always fits an empty queue, or a long prompt could never be admitted.
if requests >= tonumber(ARGV[4]) or (requests > 0 and tokens + prompt_tokens > tonumber(ARGV[5])) then
  return {'full', requests, tokens}
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local admitted_ms = string.format('%.0f', now)
local deadline_ms = string.format('%.0f', now + tonumber(ARGV[6]))
local entry = redis.call('XADD', KEYS[2], '*', 'id', ARGV[1], 'header', ARGV[12],
  'admitted_ms', admitted_ms, 'deadline_ms', deadline_ms, 'log', ARGV[8], 'start', ARGV[9])
redis.call('HSET', KEYS[1], 'status', 'queued', 'epoch', 0, 'class', class, 'tokens', prompt_tokens,
  'tenant', ARGV[11], 'log', ARGV[8], 'start', ARGV[9], 'admitted_ms', admitted_ms, 'deadline_ms', deadline_ms,
  'entry', entry, 'body', ARGV[13], 'resume_grace_ms', ARGV[14], 'f:' .. ARGV[10], 1)
redis.call('PEXPIRE', KEYS[1], ARGV[7])
redis.call('HINCRBY', KEYS[3], 'requests:' .. class, 1)
redis.call('HINCRBY', KEYS[3], 'tokens:' .. class, prompt_tokens)
return {'ok', admitted_ms, deadline_ms, 1}

-- Dispatch: the owner moves a request from QUEUED to RUNNING and gets its body. Repeating it is harmless.
--
-- KEYS  record, queued
-- ARGV  epoch, worker_id, fingerprint (what the worker's numerics are: a started request resumes only on equal ones)
-- Answer {'missing'} | {'lost'} | {'ended', status} | {'cancelled', reason} | {'taken', body, attempts}
redis.call('HDEL', KEYS[1], '')  -- takes no room: a full Redis lets a script go on that has written (docs/delivery.md)
local found = redis.call('HMGET', KEYS[1], 'status', 'epoch', 'term_epoch', 'cancel', 'class', 'tokens', 'body')
local status = found[1]
if not status then
  return {'missing'}
end
if found[3] then
  return {'ended', status}
end
if found[2] ~= ARGV[1] then
  return {'lost'}
end
if found[4] then
  return {'cancelled', found[4]}
end
if status == 'queued' then
  redis.call('HINCRBY', KEYS[2], 'requests:' .. found[5], -1)
  redis.call('HINCRBY', KEYS[2], 'tokens:' .. found[5], -found[6])
  redis.call('HINCRBY', KEYS[1], 'attempts', 1)
  local time = redis.call('TIME')
  local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
  redis.call('HSETNX', KEYS[1], 'first_dispatch_ms', now)
  redis.call('HSET', KEYS[1], 'dispatch_ms', now)
end
redis.call('HSET', KEYS[1], 'status', 'running', 'worker', ARGV[2], 'fingerprint', ARGV[3])
return {'taken', found[7], redis.call('HGET', KEYS[1], 'attempts')}

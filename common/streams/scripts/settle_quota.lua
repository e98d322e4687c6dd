-- A request has ended: what it was counted for becomes what it used. Twice is once, because it is open once.
--
-- KEYS  quota, minute, open
-- ARGV  id, tokens used (-1: it was never admitted, so nothing was used and nothing counts)
-- Answer 1 when this settled it, else 0
if redis.call('ZREM', KEYS[3], ARGV[1]) == 0 then
  return 0
end
if not redis.call('ZSCORE', KEYS[2], ARGV[1]) then
  return 1
end
local field, used = 't:' .. ARGV[1], math.max(0, tonumber(ARGV[2]))
local counted = tonumber(redis.call('HGET', KEYS[1], field) or 0)
redis.call('HINCRBY', KEYS[1], 'sum', used - counted)
if tonumber(ARGV[2]) < 0 then
  redis.call('ZREM', KEYS[2], ARGV[1])
  redis.call('HDEL', KEYS[1], field)
else
  redis.call('HSET', KEYS[1], field, used)
end
return 1

-- The number of a model's partitions goes up and never down: whoever wants fewer must not hide one that has requests.
-- In one step, because two who want different numbers at once would otherwise end with the smaller.
--
-- KEYS  partition counts
-- ARGV  model, wanted number
-- Answer {the number that holds}
local current = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or 1)
local wanted = tonumber(ARGV[2])
if wanted > current then
  redis.call('HSET', KEYS[1], ARGV[1], wanted)
  return {wanted}
end
return {current}

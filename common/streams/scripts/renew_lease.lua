-- Renew a lease that is mine, or take it again if it ran out and nobody else has it.
--
-- KEYS  lease
-- ARGV  value, ttl_ms
-- Answer {'held'} | {'other', value}
local value = redis.call('GET', KEYS[1])
if value and value ~= ARGV[1] then
  return {'other', value}
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {'held'}

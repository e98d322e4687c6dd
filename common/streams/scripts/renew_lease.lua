-- Renew a lease that is mine, or take one that nobody has: it ran out, or was given back (an empty value).
--
-- Renewing needs no memory, so that a full Redis costs nobody a lease.
--
-- KEYS  lease
-- ARGV  value, ttl_ms
-- Answer {'held'} | {'other', value}
local value = redis.call('GET', KEYS[1])
if value == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
elseif value and value ~= '' then
  return {'other', value}
else
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return {'held'}

-- Renew a lease that is mine, or take one that nobody has: it ran out, or was given back (an empty value).
--
-- KEYS  lease
-- ARGV  value, ttl_ms
-- Answer {'held'} | {'other', value}
local value = redis.call('GET', KEYS[1])
if value and value ~= '' and value ~= ARGV[1] then
  return {'other', value}
end
redis.call('DEL', KEYS[1])  -- takes no room: a full Redis lets a script go on that has written (docs/delivery.md)
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {'held'}

-- A claimant was refused. When nobody else claims the key, and nothing was admitted, it is free again.
--
-- KEYS  claim
-- ARGV  claimant
-- Answer 'kept' | 'freed'
if redis.call('HDEL', KEYS[1], 'c:' .. ARGV[1]) == 0 then
  return 'kept'
end
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if field == 'admitted' or string.sub(field, 1, 2) == 'c:' then
    return 'kept'
  end
end
redis.call('DEL', KEYS[1])
return 'freed'

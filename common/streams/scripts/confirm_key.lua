-- The request that a key stands for has been admitted: from here on a missing record means that its result is gone.
--
-- KEYS  claim
-- ARGV  id, digest, ttl_ms
-- Answer 'confirmed' | 'other' (the key stands for another request by now)
local id = redis.call('HGET', KEYS[1], 'id')
if id and id ~= ARGV[1] then
  return 'other'
end
-- Without its claimants; and made anew where data was lost, because the request is there.
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'id', ARGV[1], 'digest', ARGV[2], 'admitted', 1)
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 'confirmed'

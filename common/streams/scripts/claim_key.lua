-- A caller claims an idempotency key for a new request, or joins the claim that stands.
--
-- Until the request is admitted the claim counts its claimants (c:<name>, the id that each would have used): any of
-- them may admit it, and it is given up when all have been refused. Repeating it is harmless: a caller whose claim
-- stands finds his own id.
--
-- KEYS  claim
-- ARGV  id, digest, id of a request that has lost the key ('' for none), ttl_ms
-- Answer id, digest, '1' once it is known to be admitted, else ''
local found = redis.call('HMGET', KEYS[1], 'id', 'digest', 'admitted')
if not found[1] or found[1] == ARGV[3] then
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], 'id', ARGV[1], 'digest', ARGV[2], 'c:' .. ARGV[1], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
  return {ARGV[1], ARGV[2], ''}
end
if found[2] == ARGV[2] and not found[3] then
  redis.call('HSET', KEYS[1], 'c:' .. ARGV[1], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
end
return {found[1], found[2], found[3] or ''}

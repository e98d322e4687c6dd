-- Look at a lease as its holder would: an absence that is seen while nobody could renew is none.
--
-- The DEL changes nothing, for there is nothing to delete; Redis refuses it whenever it would refuse a renewal (it is a
-- replica, lacks replicas, or has a disk that takes no writes), and then the look has failed.
--
-- KEYS  lease
-- Answer {value, how many milliseconds it has left} | {}
local value = redis.call('GET', KEYS[1])
if not value then
  redis.call('DEL', KEYS[1])
  return {}
end
return {value, redis.call('PTTL', KEYS[1])}

-- Look at a lease as its holder would: an absence that is seen while nobody could renew is none.
--
-- The SET changes nothing, for there is nothing to change; Redis refuses it whenever it would refuse a renewal (full,
-- a replica, a disk that takes no writes), and then the look has failed.
--
-- KEYS  lease
-- Answer the value, or nothing
local value = redis.call('GET', KEYS[1])
if not value then
  redis.call('SET', KEYS[1], '', 'XX')
end
return value

-- Delete the record of a request that has ended; an open one is left alone.
--
-- KEYS  record
-- Answer the status before ('' when there was no record)
local found = redis.call('HMGET', KEYS[1], 'status', 'term')
if found[2] then
  redis.call('DEL', KEYS[1])
end
return found[1] or ''

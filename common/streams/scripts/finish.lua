-- The terminal record, by compare-and-set on the epoch; success again if it is already mine.
--
-- Body and checkpoint go: the record holds the result from here on.
--
-- KEYS  record, queued
-- ARGV  epoch, status, terminal record, result_ttl_ms
-- Answer {'missing'} | {'lost'} | {'ended', status} (somebody else's end) | {'finished'}
local found = redis.call('HMGET', KEYS[1], 'status', 'epoch', 'term_epoch', 'class', 'tokens')
if not found[1] then
  return {'missing'}
end
if found[3] then
  if found[3] == ARGV[1] then
    return {'finished'}
  end
  return {'ended', found[1]}
end
if found[2] ~= ARGV[1] then
  return {'lost'}
end
if found[1] == 'queued' then
  redis.call('HINCRBY', KEYS[2], 'requests:' .. found[4], -1)
  redis.call('HINCRBY', KEYS[2], 'tokens:' .. found[4], -found[5])
end
redis.call('HSET', KEYS[1], 'status', ARGV[2], 'term', ARGV[3], 'term_epoch', ARGV[1])
redis.call('HDEL', KEYS[1], 'body', 'checkpoint', 'checkpoint_seq')
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return {'finished'}

-- The owner stores what is logged so far. Only under its epoch, and only forward: a copy that was delayed must not
-- replace a newer checkpoint, behind which the log may be trimmed already.
--
-- KEYS  record
-- ARGV  epoch, checkpoint, tokens in it
-- Answer {'missing'} | {'lost'} | {'ended', status} | {'stored'}
redis.call('HDEL', KEYS[1], '')  -- takes no room: a full Redis lets a script go on that has written (docs/delivery.md)
local found = redis.call('HMGET', KEYS[1], 'status', 'epoch', 'term_epoch')
if not found[1] then
  return {'missing'}
end
if found[3] then
  return {'ended', found[1]}
end
if found[2] ~= ARGV[1] then
  return {'lost'}
end
local known = tonumber(redis.call('HGET', KEYS[1], 'checkpoint_seq') or 0)
if tonumber(ARGV[3]) >= known then
  redis.call('HSET', KEYS[1], 'checkpoint', ARGV[2], 'checkpoint_seq', ARGV[3])
end
if tonumber(ARGV[3]) > known then
  redis.call('HDEL', KEYS[1], 'stalls')
end
return {'stored'}

-- The owner stores what is logged so far. Only under its epoch.
--
-- KEYS  record
-- ARGV  epoch, checkpoint
-- Answer {'missing'} | {'lost'} | {'ended', status} | {'stored'}
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
redis.call('HSET', KEYS[1], 'checkpoint', ARGV[2])
return {'stored'}

-- The owner puts a running request back into the queue: pre-emption, hand-over, or the loss of its worker.
--
-- How the attempt ended is kept in the record (try:<number>), so that a dead letter has its history whoever writes it.
--
-- KEYS  record, queued
-- ARGV  epoch, worker_losses (absolute, so that repeating it is harmless), tokens logged, outcome ('' keeps no history),
--       attempts to remember
-- Answer {'missing'} | {'lost'} | {'ended', status} | {'queued'}
redis.call('HDEL', KEYS[1], '')  -- takes no room: a full Redis lets a script go on that has written (docs/delivery.md)
local found = redis.call('HMGET', KEYS[1], 'status', 'epoch', 'term_epoch', 'class', 'tokens', 'attempts', 'worker',
  'dispatch_ms')
if not found[1] then
  return {'missing'}
end
if found[3] then
  return {'ended', found[1]}
end
if found[2] ~= ARGV[1] then
  return {'lost'}
end
if found[1] == 'running' then
  redis.call('HINCRBY', KEYS[2], 'requests:' .. found[4], 1)
  redis.call('HINCRBY', KEYS[2], 'tokens:' .. found[4], found[5])
end
redis.call('HSET', KEYS[1], 'status', 'queued', 'worker_losses', ARGV[2])
if ARGV[4] ~= '' and found[6] then
  redis.call('HSET', KEYS[1], 'try:' .. found[6],
    table.concat({found[7] or '', found[8] or 0, ARGV[3], ARGV[4]}, '\t'))
  redis.call('HDEL', KEYS[1], 'try:' .. (found[6] - ARGV[5]))
end
return {'queued'}

-- The terminal record, by compare-and-set on the epoch; success again if it is already mine.
--
-- Body and checkpoint go: the record holds the result from here on. A request that is dead becomes a dead letter in
-- the same moment, with its body and its history: the two exist together, and once.
--
-- KEYS  record, queued, dead
-- ARGV  epoch, status, terminal record, result_ttl_ms, reason, id (these two for a dead letter)
-- Answer {'missing'} | {'lost'} | {'ended', status} (somebody else's end) | {'finished'}
redis.call('HDEL', KEYS[1], '')  -- takes no room: a full Redis lets a script go on that has written (docs/delivery.md)
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
if ARGV[2] == 'dead' then
  local letter = redis.call('HMGET', KEYS[1], 'tenant', 'body', 'attempts', 'admitted_ms', 'deadline_ms')
  local last, tries = tonumber(letter[3] or 0), {}
  for number = math.max(1, last - 100), last do
    tries[#tries + 1] = redis.call('HGET', KEYS[1], 'try:' .. number) or nil
  end
  redis.call('XADD', KEYS[3], '*', 'id', ARGV[6], 'tenant', letter[1] or '', 'reason', ARGV[5], 'body', letter[2] or '',
    'budget_ms', string.format('%.0f', (letter[5] or 0) - (letter[4] or 0)), 'tries', table.concat(tries, '\n'))
end
redis.call('HSET', KEYS[1], 'status', ARGV[2], 'term', ARGV[3], 'term_epoch', ARGV[1])
redis.call('HDEL', KEYS[1], 'body', 'checkpoint', 'checkpoint_seq')
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return {'finished'}

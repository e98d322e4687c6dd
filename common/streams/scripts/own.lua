-- A scheduler takes an entry, new or left behind: claim it, raise the epoch, set the owner.
--
-- A request that ran under the former owner is waiting again from here on, and this attempt goes into its history.
-- Repeating it raises the epoch once more, which the caller learns; the last answer counts.
--
-- ``stalls`` counts how often it was found running with no more tokens than before (checkpoint.lua starts anew).
--
-- KEYS  record, inbox, queued
-- ARGV  group, owner, entry, attempts to remember
-- Answer {'missing'} | {'ended', status, log} | {'owned', epoch, status_before, now_ms, cancel, checkpoint, log, start,
--         worker_losses, attempts, admitted_ms, deadline_ms, resume_grace_ms, first_dispatch_ms, fingerprint, stalls};
--         absent values are ''
-- pcall: without a group (a flush took it) there is nothing to claim, and the record still decides. A write that takes
-- no room, too: a full Redis lets a script go on that has written (docs/delivery.md).
redis.pcall('XCLAIM', KEYS[2], ARGV[1], ARGV[2], 0, ARGV[3], 'JUSTID')
local found = redis.call('HMGET', KEYS[1], 'status', 'term_epoch', 'class', 'tokens', 'log')
local status, class, tokens = found[1], found[3], found[4]
if not status then
  return {'missing'}
end
if found[2] then
  return {'ended', status, found[5] or ''}
end
local epoch = redis.call('HINCRBY', KEYS[1], 'epoch', 1)
redis.call('HSET', KEYS[1], 'owner', ARGV[2])
if status == 'running' then
  redis.call('HSET', KEYS[1], 'status', 'queued')
  redis.call('HINCRBY', KEYS[3], 'requests:' .. class, 1)
  redis.call('HINCRBY', KEYS[3], 'tokens:' .. class, tokens)
  redis.call('HINCRBY', KEYS[1], 'stalls', 1)
  local try = redis.call('HMGET', KEYS[1], 'attempts', 'worker', 'dispatch_ms', 'checkpoint_seq')
  if try[1] then
    redis.call('HSET', KEYS[1], 'try:' .. try[1],
      table.concat({try[2] or '', try[3] or 0, try[4] or 0, 'scheduler lost'}, '\t'))
    redis.call('HDEL', KEYS[1], 'try:' .. (try[1] - ARGV[4]))
  end
end
local time = redis.call('TIME')
local answer = {'owned', epoch, status, string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))}
local fields = redis.call('HMGET', KEYS[1], 'cancel', 'checkpoint', 'log', 'start', 'worker_losses', 'attempts',
  'admitted_ms', 'deadline_ms', 'resume_grace_ms', 'first_dispatch_ms', 'fingerprint', 'stalls')
for _, value in ipairs(fields) do
  answer[#answer + 1] = value or ''
end
return answer

-- The owner refreshes its entries of one inbox and learns which it has lost and which are to be cancelled.
--
-- A request whose last follower left and whose grace has passed is marked as cancelled here: the set of
-- followers is checked again in the same moment.
--
-- KEYS  inbox, record...
-- ARGV  group, owner, then for each record: epoch, entry
-- Answer for each record 'ok' | 'ok:<gateways beside the log's own whose clients follow>' | 'cancel:<reason>' | 'lost' | 'missing' | 'ended:<status>'
redis.call('HDEL', KEYS[2], '')  -- takes no room: a full Redis lets a script go on that has written (docs/delivery.md)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local answer = {}
for i = 2, #KEYS do
  local epoch, entry = ARGV[2 * i - 1], ARGV[2 * i]
  local found = redis.call('HMGET', KEYS[i], 'epoch', 'term_epoch', 'cancel', 'abandon_ms', 'status', 'gateways')
  local cancel = found[3]
  if not found[1] then
    answer[i - 1] = 'missing'
  elseif found[1] ~= epoch then
    answer[i - 1] = 'lost'
  elseif found[2] then
    answer[i - 1] = 'ended:' .. found[5]
  else
    if not cancel and found[4] and tonumber(found[4]) <= now then
      cancel = 'abandoned'
      redis.call('HSET', KEYS[i], 'cancel', cancel)
    end
    -- pcall: without a group (a flush took it) there is nothing to refresh, and the record still decides.
    redis.pcall('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, entry, 'JUSTID')
    answer[i - 1] = cancel and ('cancel:' .. cancel) or (found[6] and ('ok:' .. found[6]) or 'ok')
  end
end
return answer

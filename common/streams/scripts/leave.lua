-- Followers leave: one by its name, or all whose name starts with a lost gateway's id.
--
-- When none is left the request is cancelled now (grace 0) or when its grace has passed (heartbeat.lua checks the
-- set again). A request that asked to be resumable has at least its own grace. Repeating it is harmless.
--
-- KEYS  record, wake
-- ARGV  id, prefix of the followers' names, grace_ms, wake_ttl_ms
-- Answer {'missing'} | {'ended', status} | {'followed'} | {'abandoned'} | {'cancelling'}
redis.call('HDEL', KEYS[1], '')  -- takes no room: a full Redis lets a script go on that has written (docs/delivery.md)
local found = redis.call('HMGET', KEYS[1], 'status', 'term_epoch', 'resume_grace_ms', 'abandon_ms', 'log')
if not found[1] then
  return {'missing'}
end
if found[2] then
  return {'ended', found[1]}
end
local prefix = 'f:' .. ARGV[2]
local others, gateways, named = 0, {}, {[found[5] or ''] = true}
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(field, 1, #prefix) == prefix then
    redis.call('HDEL', KEYS[1], field)
  elseif string.sub(field, 1, 2) == 'f:' then
    others = others + 1
    local gateway = string.match(field, '^f:([^:]*)')
    if not named[gateway] then
      named[gateway] = true
      gateways[#gateways + 1] = gateway
    end
  end
end
-- What is left to be watched beside the log's own gateway.
if #gateways > 0 then
  redis.call('HSET', KEYS[1], 'gateways', table.concat(gateways, ' '))
else
  redis.call('HDEL', KEYS[1], 'gateways')
end
if others > 0 then
  return {'followed'}
end
local grace = math.max(tonumber(ARGV[3]), tonumber(found[3] or 0))
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if grace > 0 then
  if not found[4] then
    redis.call('HSET', KEYS[1], 'abandon_ms', string.format('%.0f', now + grace))
  end
  return {'abandoned'}
end
redis.call('HSETNX', KEYS[1], 'cancel', 'abandoned')
redis.call('XADD', KEYS[2], 'MINID', '~', string.format('%.0f', now - ARGV[4]), '*', 'id', ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return {'cancelling'}

-- What a tenant has used: nothing is changed, what is over is left out.
--
-- KEYS  quota, minute, open
-- Answer requests of the last minute, their tokens, open requests
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ids = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. (now - 60000), '+inf')
local tokens = 0
for _, id in ipairs(ids) do
  tokens = tokens + tonumber(redis.call('HGET', KEYS[1], 't:' .. id) or 0)
end
return {#ids, tokens, redis.call('ZCOUNT', KEYS[3], '(' .. now, '+inf')}

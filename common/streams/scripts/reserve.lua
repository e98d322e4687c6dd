-- Count a request against its tenant's limits before it is admitted, or refuse it. Repeating it with the same id is
-- harmless. The minute is the last sixty seconds, request by request; what is open counts until it is settled, at the
-- latest when it cannot be running any more.
--
-- KEYS  quota (t:<id> tokens of a request of this minute, sum of them), minute (ids by time), open (ids by end)
-- ARGV  id, tokens, most requests a minute, most tokens a minute, most open ('' for no limit, all three), hold_ms, ttl_ms
-- Answer {'ok'} | {'full', limit, ms until a retry can help ('' when none can)}
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now - 60000)) do
  -- 0 minus, because Lua writes the negative of nothing as '-0', which Redis takes for no integer.
  redis.call('HINCRBY', KEYS[1], 'sum', 0 - tonumber(redis.call('HGET', KEYS[1], 't:' .. id) or 0))
  redis.call('HDEL', KEYS[1], 't:' .. id)
  redis.call('ZREM', KEYS[2], id)
end
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now)
if redis.call('ZSCORE', KEYS[2], ARGV[1]) or redis.call('ZSCORE', KEYS[3], ARGV[1]) then
  return {'ok'}
end

local tokens = tonumber(ARGV[2])
if ARGV[5] ~= '' and redis.call('ZCARD', KEYS[3]) >= tonumber(ARGV[5]) then
  return {'full', 'concurrent_requests', 1000}
end
if ARGV[3] ~= '' then
  local most, count = tonumber(ARGV[3]), redis.call('ZCARD', KEYS[2])
  if most < 1 then
    return {'full', 'requests_per_minute', ''}
  elseif count >= most then
    local freed = redis.call('ZRANGE', KEYS[2], count - most, count - most, 'WITHSCORES')
    return {'full', 'requests_per_minute', freed[2] + 60000 - now}
  end
end
if ARGV[4] ~= '' then
  local most, sum = tonumber(ARGV[4]), tonumber(redis.call('HGET', KEYS[1], 'sum') or 0)
  if tokens > most then
    return {'full', 'tokens_per_minute', ''}
  elseif sum + tokens > most then
    local minute = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
    for place = 1, #minute, 2 do
      sum = sum - tonumber(redis.call('HGET', KEYS[1], 't:' .. minute[place]) or 0)
      if sum + tokens <= most then
        return {'full', 'tokens_per_minute', minute[place + 1] + 60000 - now}
      end
    end
  end
end

redis.call('HSET', KEYS[1], 't:' .. ARGV[1], tokens)
redis.call('HINCRBY', KEYS[1], 'sum', tokens)
redis.call('ZADD', KEYS[2], now, ARGV[1])
redis.call('ZADD', KEYS[3], now + tonumber(ARGV[6]), ARGV[1])
for place = 1, 3 do
  redis.call('PEXPIRE', KEYS[place], ARGV[7])
end
return {'ok'}

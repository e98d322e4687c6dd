-- Count what waits anew: the admission counters as they should be, whatever was lost on the way.
--
-- A record that vanished takes its count with nobody who could give it back. Everything that counts stands in an
-- inbox, so these say the truth; a queue that is too long to be walked in one go is left for another time.
--
-- KEYS  queued, the inbox of each class
-- ARGV  what record keys begin with, most entries of a class, name of each class
-- Answer {how many counters were wrong}
local num_wrong = 0
local function put_right(field, value)
  if tonumber(redis.call('HGET', KEYS[1], field) or 0) ~= value then
    redis.call('HSET', KEYS[1], field, value)
    num_wrong = num_wrong + 1
  end
end

for i = 2, #KEYS do
  local class = ARGV[i + 1]
  if redis.call('XLEN', KEYS[i]) <= tonumber(ARGV[2]) then
    local requests, tokens, seen = 0, 0, {}
    for _, entry in ipairs(redis.call('XRANGE', KEYS[i], '-', '+')) do
      local id
      for j = 1, #entry[2], 2 do
        if entry[2][j] == 'id' then
          id = entry[2][j + 1]
        end
      end
      if id and not seen[id] then
        seen[id] = true
        local found = redis.call('HMGET', ARGV[1] .. id, 'status', 'tokens', 'class')
        if found[1] == 'queued' and found[3] == class then
          requests = requests + 1
          tokens = tokens + tonumber(found[2] or 0)
        end
      end
    end
    put_right('requests:' .. class, requests)
    put_right('tokens:' .. class, tokens)
  end
end
return {tostring(num_wrong)}

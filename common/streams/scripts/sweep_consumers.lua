-- Find entries that other consumers hold, and remove consumers that hold nothing.
--
-- In one script, because removing a consumer also removes its pending entries: between a look and a removal a
-- paused scheduler's blocking read could still be served.
--
-- KEYS  inbox
-- ARGV  group, my name, idle_ms after which an empty consumer goes
-- Answer names of other consumers that hold entries
local answer = {}
-- pcall: a flush may have taken the stream and its group, whose readers create them anew.
local consumers = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])
if consumers.err then
  return answer
end
for _, facts in ipairs(consumers) do
  local consumer = {}
  for i = 1, #facts, 2 do
    consumer[facts[i]] = facts[i + 1]
  end
  if consumer.name ~= ARGV[2] then
    if consumer.pending > 0 then
      answer[#answer + 1] = consumer.name
    elseif consumer.idle > tonumber(ARGV[3]) then
      redis.call('XDEL', KEYS[1], '0-0')  -- takes no room: a full Redis lets a script go on that has written (docs/delivery.md)
      redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], consumer.name)
    end
  end
end
return answer

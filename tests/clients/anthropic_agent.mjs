// An agent on the official @anthropic-ai/sdk package; as openai_agent.mjs in all else.

import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({ maxRetries: 2 }); // ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY
const [, , how, task] = process.argv;
const model = process.env.MODEL;
const tools = [{ name: "add", input_schema: { type: "object", properties: {} } }];

async function messages(stream) {
  const turns = [{ role: "user", content: task }];
  for (;;) {
    const asked = { model, max_tokens: 100, messages: turns, tools };
    const reply = stream
      ? await client.messages.stream(asked).finalMessage()
      : await client.messages.create(asked);
    if (reply.stop_reason !== "tool_use") return reply.content[0].text;
    const uses = reply.content.filter((block) => block.type === "tool_use");
    const results = uses.map(({ id }) => ({ type: "tool_result", tool_use_id: id, content: "3" }));
    turns.push({ role: "assistant", content: reply.content }, { role: "user", content: results });
  }
}

async function fail() {
  try {
    await client.messages.create({ model, max_tokens: 9, messages: [{ role: "user", content: task }] });
  } catch (error) {
    return `${error.constructor.name} ${error.status}: ${error.message}`;
  }
}

const output = how === "fail" ? await fail() : await messages(how.endsWith("-stream"));
process.stdout.write(JSON.stringify({ output }));
